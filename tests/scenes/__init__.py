"""What a host and a command do beside each other; see `scene.py`."""
