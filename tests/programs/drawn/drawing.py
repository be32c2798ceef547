"""What a drawn program is made of: ``pick([1, 2, 3])``, decided by the number it is started with."""

import random
import sys

pick = random.Random(int(sys.argv[1])).choice
