"""What several faults do alike: damage to files, and volumes that take nothing any more."""
