"""Commands for sign-in, departments, projects, members, secrets and subscriptions."""
