//! Data diffusion (data-diffusion §3): objects and what tasks declare of them,
//! the dispatcher's index of where they are, a node's cache and its staging of
//! inputs.

pub mod broadcast;
pub mod cache;
pub mod declared;
pub mod index;
pub mod limits;
pub mod object;
pub mod stage;
pub mod stripes;
pub mod way;

/// The next number of SplitMix64: one seed gives one sequence.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
