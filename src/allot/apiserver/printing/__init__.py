"""Tables: what `kubectl get` shows of objects. `table` in `tables` makes one; `printer_for` says which columns a kind has."""
