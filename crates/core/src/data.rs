//! Data diffusion: objects, what tasks declare of them, the cache and the
//! staging of inputs on one node (data-diffusion §3).

pub mod declared;
pub mod object;
