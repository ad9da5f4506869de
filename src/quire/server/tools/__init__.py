"""What an answer's text means: reasoning, content and tool calls, told apart while it grows."""
