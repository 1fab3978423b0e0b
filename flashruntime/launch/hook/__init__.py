"""The directory that a launched Python finds first on its path; see `sitecustomize`."""
