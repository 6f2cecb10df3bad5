"""Towers of multimodal models: their parameters, by the classes that build them."""
