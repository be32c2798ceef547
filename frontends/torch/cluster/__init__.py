"""An absent cluster and an absent device."""
