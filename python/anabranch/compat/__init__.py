"""Layers that let programs written for other libraries run here; none is active unasked."""
