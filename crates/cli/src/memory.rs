//! How this process's memory is kept between messages.

/// Buffers up to this size come from memory that is kept when they are freed.
/// By default the C library maps and unmaps each of more than 128 KiB, a
/// message of a thousand tasks, and every page of it costs a fault each time:
/// half of an executor's processor time for distinct tasks.
#[cfg(target_env = "gnu")]
const KEPT_BLOCK_BYTES: libc::c_int = 4 << 20;
/// Freed memory that is kept for the next message at most.
#[cfg(target_env = "gnu")]
const KEPT_FREE_BYTES: libc::c_int = 32 << 20;

/// Has the C library keep freed buffers of messages for the next ones. Other
/// C libraries than glibc are left as they are.
pub(crate) fn keep_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt has no precondition but that no other thread is inside
    // it: this is called first of all, before there are threads. A value it
    // does not take leaves the allocator as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
    }
}
