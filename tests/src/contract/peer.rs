//! Sockets of this process that do as they are told: what runtimes are connected to.
