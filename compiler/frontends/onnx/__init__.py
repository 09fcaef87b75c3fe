"""Models in ONNX format."""
