"""A model on several ranks: how they meet, how one of them drives the others, how what each reports becomes one."""
