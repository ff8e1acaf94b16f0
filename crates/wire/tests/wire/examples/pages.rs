//! A page of results in a journal record.

use falkon_core::dispatch::{PagePlace, StoredPage};

pub(super) fn stored_page() -> StoredPage {
    StoredPage {
        from: 40,
        count: 200,
        tasks: vec![(41, 150), (70_000, 50)],
        place: PagePlace { file: 3, offset: 2_097_152, bytes: 1_048_600 },
    }
}
