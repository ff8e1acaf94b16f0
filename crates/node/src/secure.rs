//! Security: access files, the handshake, and protected frames.
