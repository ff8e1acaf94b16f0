//! Data diffusion: objects, and where they are held (data-diffusion §3.1).

pub mod index;
pub mod object;
