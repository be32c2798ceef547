"""Why a run may differ in form from its capture: one named reason per file."""
