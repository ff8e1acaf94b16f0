//! A dispatcher, asked and told by hand: each file has one of its duties.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod acceptances;
mod acknowledgements;
mod alternatives;
mod attempts;
mod bounds;
mod clock;
mod comeback;
mod everywhere;
mod explain;
mod fixture;
mod gangs;
mod gone;
mod inspect;
mod instances;
mod join;
mod lease;
mod lifetime;
mod pages;
mod parts;
mod recomputation;
mod retries;
mod room;
mod silence;
mod sizes;
mod speculation;
mod suspension;
mod tails;
mod unwritten;
mod users;
mod values;
