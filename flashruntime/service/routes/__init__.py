"""HTTP routes: translation only."""
