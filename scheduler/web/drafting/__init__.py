"""Here a form and a document are two views of one draft: what is changed in one changes in the other."""
