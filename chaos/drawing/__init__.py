"""The time line's parts: what is drawn, where, and how much of it at most."""
