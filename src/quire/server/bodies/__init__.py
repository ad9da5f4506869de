"""What the bodies of requests and answers are made of, whatever API they belong to."""
