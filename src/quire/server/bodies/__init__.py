"""Parts of request bodies and answers that several APIs share."""
