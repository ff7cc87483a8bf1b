"""From a recipe to a trained captioner: the loop you can read aloud, and what it needs around it."""
