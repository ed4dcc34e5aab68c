"""Tables for `kubectl get`. `table` in `tables` builds one; `printer_for` returns the columns of a kind."""
