"""The commands; the modules beside this package are shared by them."""
