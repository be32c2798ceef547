"""Why a run may differ in form from its capture: one known reason per file."""
