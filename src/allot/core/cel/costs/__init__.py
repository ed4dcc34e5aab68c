"""What an expression may cost, estimated beforehand and counted while it runs, as cel-go does both."""
