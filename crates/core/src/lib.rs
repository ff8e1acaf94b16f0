//! Falkon's logic: state machines without IO.
