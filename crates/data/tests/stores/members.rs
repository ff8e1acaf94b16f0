//! Members of archives on disk and on a web server.

use std::sync::atomic::Ordering;

use falkon_archive::{Source, WriteOptions, Writer};
use falkon_core::archive::FileBounds;

use super::*;

/// Writes an archive; `members` are those of one file each.
fn archive(path: &Path, members: &[(&str, &[u8])]) {
    for (name, data) in members {
        let options = WriteOptions { append: true, ..WriteOptions::default() };
        let mut writer = Writer::create(path, options).unwrap();
        let data = data.to_vec();
        let source = Source::Bytes { data, modified: 1_700_000_000, permissions: 0o644 };
        writer.add(name.as_bytes().to_vec(), source).unwrap();
        writer.finish().unwrap();
    }
}

/// Writes one file with many members, besides the ones given.
fn large(path: &Path, level: u32, others: usize, members: &[(&str, Vec<u8>)]) {
    let bounds = FileBounds { members: 1_000_000, bytes: 1 << 40 };
    let options = WriteOptions { bounds, level, ..WriteOptions::default() };
    let mut writer = Writer::create(path, options).unwrap();
    let mut add = |name: String, data: Vec<u8>| {
        let source = Source::Bytes { data, modified: 1_700_000_000, permissions: 0o644 };
        writer.add(name.into_bytes(), source).unwrap();
    };
    for number in 0..others {
        add(format!("{number}/other"), pattern(300));
    }
    for (name, data) in members {
        add((*name).to_owned(), data.clone());
    }
    writer.finish().unwrap();
}

fn read(stores: &Stores, url: &StoreUrl) -> Result<Vec<u8>, StoreError> {
    run(async {
        let target = Target::new();
        stores.fetch(url, &Want::default(), &target.landing).await?;
        Ok(target.content())
    })
}

fn message(result: Result<Vec<u8>, StoreError>) -> String {
    result.unwrap_err().to_string()
}

/// Bytes that deflate to fewer in no way that the writer has.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[trial]
fn the_last_member_of_a_name_in_a_set_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scores.zip");
    archive(&path, &[("7/energy", b"old"), ("8/energy", b"eight"), ("7/energy", b"newer")]);
    let stores = stores();
    let member = |name: &str| url(&format!("{}!{name}", path.display()));
    assert_eq!(read(&stores, &member("7/energy")).unwrap(), b"newer");
    assert_eq!(read(&stores, &member("8/energy")).unwrap(), b"eight");
    let known = run(stores.resolve(&member("7/energy"))).unwrap();
    assert_eq!(known.bytes, Some(5));
    assert!(known.version.starts_with("3:"), "{known:?}");
    // Another file of the set does not change what is in the first ones.
    let eight = run(stores.resolve(&member("8/energy"))).unwrap();
    archive(&path, &[("7/energy", b"newest")]);
    assert_eq!(run(stores.resolve(&member("8/energy"))).unwrap(), eight);
    let target = Target::new();
    let want = Want { version: Some(known.version), ..Want::default() };
    let changed = run(stores.fetch(&member("7/energy"), &want, &target.landing)).unwrap_err();
    let now = run(stores.resolve(&member("7/energy"))).unwrap();
    assert!(matches!(&changed, StoreError::Changed { now: Some(at), .. } if *at == now));
}

#[trial]
fn ranges_of_members_are_of_their_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    let (text, noise) = (b"0123456789".repeat(100_000), noise(700_000));
    large(&path, 2, 3, &[("text", text.clone()), ("noise", noise.clone()), ("empty", Vec::new())]);
    let stores = stores();
    for (name, content) in [("text", &text), ("noise", &noise), ("empty", &Vec::new())] {
        let member = url(&format!("{}!{name}", path.display()));
        assert!(read(&stores, &member).unwrap() == *content, "{name}");
        let (from, length) = (content.len() as u64 / 3, content.len() as u64 / 2);
        let target = Target::at(7);
        let fetched = run(stores.fetch(&member, &piece(from, Some(length)), &target.landing));
        assert_eq!(fetched.unwrap().bytes, length);
        assert_eq!(target.landing.written(), length);
        if length > 0 {
            let expected = &content[from as usize..(from + length) as usize];
            assert!(target.content()[7..] == *expected, "{name}");
        }
        let want = piece(content.len() as u64 + 1, None);
        let beyond = stores.fetch(&member, &want, &target.landing);
        assert!(matches!(run(beyond), Err(StoreError::Refused { .. })));
    }
}

#[trial]
fn what_is_wrong_with_a_member_names_it_and_its_archive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    large(&path, 2, 10, &[("m/x", noise(1000))]);
    let shown = path.display();
    let stores = stores();
    let member = |name: &str| url(&format!("{shown}!{name}"));
    let missing = message(read(&stores, &member("m/y")));
    assert_eq!(missing, format!("{shown} has no member `m/y`"));
    fs::create_dir(dir.path().join("d.zip")).unwrap();
    let of = |archive: &str| url(&format!("{}/{archive}!m/x", dir.path().display()));
    let none = message(read(&stores, &of("none.zip")));
    let nowhere = message(read(&stores, &of("none/none.zip")));
    let directory = message(read(&stores, &of("d.zip")));
    fs::write(dir.path().join("text.zip"), "no archive").unwrap();
    let text = message(read(&stores, &of("text.zip")));
    for (said, archive, why) in [
        (&none, "none.zip", "there is no"),
        (&nowhere, "none/none.zip", "there is no"),
        (&directory, "d.zip", "it is a directory"),
        (&text, "text.zip", "no ZIP file"),
    ] {
        let names = said.contains("the member `m/x`") && said.contains(archive);
        assert!(names && said.contains(why), "{said}");
    }
    // A byte of the data is another one; then the end is missing.
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(3).position(|window| window == b"m/x").unwrap() + 500;
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let target = Target::new();
    let damaged = run(stores.fetch(&member("m/x"), &Want::default(), &target.landing));
    let damaged = damaged.unwrap_err().to_string();
    // What was written does not count, and never is all of it.
    assert_eq!(target.landing.written(), 0);
    assert!(target.content().len() < 1000);
    assert!(damaged.contains("a.zip: member `m/x`"), "{damaged}");
    assert!(damaged.contains("its data are damaged: their CRC"), "{damaged}");
    assert!(read(&stores, &member("3/other")).is_ok());
    fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    let cut = message(read(&stores, &member("3/other")));
    assert!(cut.contains("`3/other`") && cut.contains("its end is missing"), "{cut}");
}

#[trial]
fn a_web_server_sends_the_parts_of_an_archive_that_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    let (member, large_one) = (pattern(5000), noise(3_000_000));
    large(&path, 0, 4_000, &[("7/energy", member.clone()), ("large", large_one.clone())]);
    let content = fs::read(&path).unwrap();
    let whole = content.len();
    assert!(whole > 4_000_000);
    let web = web::serve(content);
    let stores = stores();
    let named =
        |server: &str, name: &str| url(&format!("http://{}/{server}?a.zip!{name}", web.address));
    let known = run(stores.resolve(&named("tagged", "7/energy"))).unwrap();
    assert_eq!(known, Resolved { bytes: Some(5000), version: "\"v1\"".to_owned() });
    web.sent.store(0, Ordering::Relaxed);
    assert_eq!(read(&stores, &named("tagged", "7/energy")).unwrap(), member);
    let sent = web.sent.swap(0, Ordering::Relaxed);
    assert!(sent < 400_000, "{sent} of {whole} bytes");
    assert!(read(&stores, &named("dated", "large")).unwrap() == large_one);
    let sent = web.sent.load(Ordering::Relaxed);
    assert!(sent < 3_000_000 + 5_000_000, "{sent} of {whole} bytes");
    // A server that tells no version.
    let known = run(stores.resolve(&named("other", "large"))).unwrap();
    assert_eq!(known, Resolved { bytes: Some(3_000_000), version: String::new() });
    let missing = message(read(&stores, &named("tagged", "none")));
    assert!(missing.contains("has no member `none`"), "{missing}");
    let whole_only = message(read(&stores, &named("rangeless", "large")));
    assert!(whole_only.contains("does not give a part of it"), "{whole_only}");
    let gone = message(read(&stores, &url(&format!("http://{}/404?a.zip!x", web.address))));
    assert!(gone.contains("`x`") && gone.contains("there is no http://"), "{gone}");
}
