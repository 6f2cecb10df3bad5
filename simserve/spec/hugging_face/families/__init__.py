"""Families of models, those that are alike in one file; `simserve.spec.hugging_face.registry` lists them all."""
