"""The evaluation plan and the interpreter: the reference semantics."""
