"""Where ops come from: layer, phase and source line."""
