"""Scripts that run inside the helper image: standard library only, one JSON object in, JSON out."""
