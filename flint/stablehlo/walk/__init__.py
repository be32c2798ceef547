"""What the handlers of all ops share: state, scopes, opened blocks, what is known of values."""
