"""The compiler: IRs, operators, passes and frontends; knows machines only as data."""
