"""What must hold in every program and every run, whatever the scenario.

Each law is a function, and the first paragraph of its docstring stands in docs/inside-a-run.md (tests/packaging/test_documents.py). A
new law also needs a fault that it finds, in tests/property/test_audit_catches.py or, of programs, test_program_laws.py.
"""
