"""Commands about a model's files: download, describe, identify and save them."""
