//! Read-only file systems in a process: the kernel's FUSE protocol, without a library.
//! [`Mounted`] makes and removes the mount, [`serve`] answers what the kernel asks, from what
//! implements [`Files`].

mod files;
pub mod limits;
mod mount;
mod protocol;
mod serve;

pub use files::{Attributes, Entry, Files, ROOT, Totals, Unreadable};
pub use mount::{MountError, Mounted, is_possible};
pub use protocol::{Answer, Session};
pub use serve::serve;
