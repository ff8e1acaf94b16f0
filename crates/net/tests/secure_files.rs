//! Identities and access files on a real file system.

#![allow(clippy::unwrap_used, reason = "a test or a benchmark fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use falkon_net::secure::{
    AccessError, AccessFile, Epochs, FileError, Identity, IdentityError, Level, Places, Role,
};
use proptest::prelude::*;
use tempfile::TempDir;

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn write_private(path: &Path, content: impl AsRef<[u8]>) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn addresses() -> Vec<String> {
    vec!["one.example:4711".to_owned(), "[::1]:4711".to_owned()]
}

/// The file as a JSON value after `edit`, loaded again.
fn load_edited(edit: impl FnOnce(&mut serde_json::Value)) -> Result<AccessFile, AccessError> {
    let dir = directory();
    let path = dir.path().join("access.json");
    let identity = Identity::open(dir.path()).unwrap();
    identity.write_access_files(dir.path(), Level::Encrypt, &addresses(), &[]).unwrap();
    let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut value);
    write_private(&path, serde_json::to_vec(&value).unwrap());
    AccessFile::load(&path)
}

#[test]
fn a_restart_keeps_the_identity_and_another_directory_has_another() {
    let (dir, other) = (directory(), directory());
    let epochs = Epochs::draw().unwrap();
    let open = |dir: &Path| Identity::open(dir).unwrap().with_epochs(epochs.clone());
    let (first, again, stranger) = (open(dir.path()), open(dir.path()), open(other.path()));
    let later = Identity::open(dir.path()).unwrap();
    assert_eq!(first.dispatcher(), again.dispatcher());
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert_ne!(first.dispatcher(), stranger.dispatcher());
    assert_ne!(first.fingerprint(), stranger.fingerprint());
    let instances = [0, 1, 2, u64::MAX].map(Role::Instance);
    let roles: Vec<Role> = Role::FIXED.into_iter().chain(instances).collect();
    for (index, role) in roles.iter().enumerate() {
        assert_eq!(first.secret(*role), again.secret(*role));
        assert_ne!(first.secret(*role), stranger.secret(*role));
        let of_an_instance = matches!(role, Role::Instance(_));
        assert_eq!(first.secret(*role) != later.secret(*role), of_an_instance, "{role}");
        for other in &roles[..index] {
            assert_ne!(first.secret(*role), first.secret(*other), "{role} and {other}");
        }
    }
}

#[test]
fn the_access_file_of_executors_opens_the_dispatchers_to_fall_back_on_and_no_other_does() {
    let (dir, other) = (directory(), directory());
    let (own, next) = (Identity::open(dir.path()).unwrap(), Identity::open(other.path()).unwrap());
    let all = next.access_file(Level::Encrypt, &["next:1".to_owned()], &Role::FIXED);
    own.write_access_files(dir.path(), Level::None, &addresses(), std::slice::from_ref(&all))
        .unwrap();
    let load = |name: &str| AccessFile::load(&dir.path().join(name)).unwrap().in_order();
    let opened: Vec<AccessFile> = load("access-executor.json").collect();
    assert_eq!(opened.len(), 2);
    assert_eq!((opened[0].dispatcher, opened[0].level), (own.dispatcher(), Level::None));
    let fallback = &opened[1];
    assert_eq!((fallback.dispatcher, fallback.level), (next.dispatcher(), Level::Encrypt));
    assert_eq!(fallback.addresses, ["next:1"]);
    assert_eq!(fallback.fingerprint, all.fingerprint);
    // It opens to executors alone.
    assert_eq!(fallback.roles().collect::<Vec<_>>(), [Role::Executor]);
    assert_eq!(fallback.secret(Role::Executor).unwrap(), all.secret(Role::Executor).unwrap());
    for name in ["access.json", "access-client.json", "access-observer.json"] {
        assert_eq!(load(name).count(), 1, "{name}");
    }
    let client = next.access_file(Level::None, &addresses(), &[Role::Client]);
    let error = own.access_file(Level::None, &addresses(), &[Role::Executor]);
    assert!(matches!(error.with_fallbacks(&[client]), Err(AccessError::NoSecret { .. })));
    let many = load_edited(|value| {
        let one = value.clone();
        value["fallbacks"] = vec![one; 17].into();
    });
    assert!(matches!(many, Err(AccessError::Fallbacks { .. })));
}

#[test]
fn what_holds_secrets_is_printed_without_them() {
    let dir = directory();
    let identity = Identity::open(dir.path()).unwrap();
    identity.write_access_files(dir.path(), Level::Encrypt, &addresses(), &[]).unwrap();
    let access = AccessFile::load(&dir.path().join("access.json")).unwrap();
    let printed = [format!("{identity:?}"), format!("{access:?}"), format!("{access:#?}")];
    for role in access.roles() {
        let secret = access.secret(role).unwrap();
        let bytes = secret.as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for text in printed.iter().chain([&format!("{secret:?}")]) {
            let shown = [hex.clone(), format!("{bytes:?}"), format!("{bytes:#?}")];
            assert!(!shown.iter().any(|shown| text.contains(shown)), "{role}: {text}");
        }
    }
}

#[test]
fn files_are_private_and_each_role_gets_its_own_secret_alone() {
    let dir = directory();
    let state = dir.path().join("made/on/the/way");
    let identity = Identity::open(&state).unwrap();
    for level in [Level::None, Level::Authenticate, Level::Encrypt] {
        identity.write_access_files(&state, level, &addresses(), &[]).unwrap();
        let check = |name: &str, roles: &[Role]| {
            let file = AccessFile::load(&state.join(name)).unwrap();
            assert_eq!(file.roles().collect::<Vec<_>>(), roles);
            assert_eq!((file.level, &file.addresses), (level, &addresses()));
            assert_eq!(file.dispatcher, identity.dispatcher());
            let fingerprint = (level == Level::Encrypt).then(|| identity.fingerprint());
            assert_eq!(file.fingerprint, fingerprint);
            for role in roles {
                assert_eq!(*file.secret(*role).unwrap(), identity.secret(*role));
            }
        };
        check("access.json", &Role::FIXED);
        check("access-client.json", &[Role::Client]);
        check("access-executor.json", &[Role::Executor]);
        check("access-observer.json", &[Role::Observer]);
    }
    let entries: Vec<_> = fs::read_dir(&state).unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 5, "no draft is left behind: {entries:?}");
    for entry in entries {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{entry:?}");
    }
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn an_instance_file_holds_its_instance_alone() {
    let dir = directory();
    let identity = Identity::open(dir.path()).unwrap();
    let client = identity.access_file(Level::Encrypt, &addresses(), &[Role::Client]);
    let path = dir.path().join("instance.json");
    client.for_instance(7, identity.secret(Role::Instance(7))).write(&path).unwrap();
    let file = AccessFile::load(&path).unwrap();
    assert_eq!(file.roles().collect::<Vec<_>>(), [Role::Instance(7)]);
    assert_eq!(file.fingerprint, Some(identity.fingerprint()));
    let error = file.secret(Role::Client).unwrap_err();
    assert!(matches!(error, AccessError::NoSecret { role: Role::Client, .. }));
    assert!(error.to_string().contains("it has: instance-7"), "{error}");
    assert!(error.to_string().contains("instance.json"), "{error}");
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let dir = directory();
    let path = dir.path().join("access.json");
    let identity = Identity::open(dir.path()).unwrap();
    identity.write_access_files(dir.path(), Level::Encrypt, &addresses(), &[]).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o644, 0o601, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = AccessFile::load(&path).unwrap_err();
        assert!(matches!(error, AccessError::File(FileError::Exposed { .. })), "{error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    for mode in [0o600, 0o400] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        AccessFile::load(&path).unwrap();
    }
    let identity_file = dir.path().join("identity.json");
    fs::set_permissions(&identity_file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = Identity::open(dir.path()).unwrap_err();
    assert!(matches!(error, IdentityError::File(FileError::Exposed { .. })), "{error}");
}

#[test]
fn what_is_wrong_with_an_access_file_is_said() {
    let dir = directory();
    let path = dir.path().join("access.json");
    let error = AccessFile::load(&path).unwrap_err();
    assert!(matches!(error, AccessError::File(FileError::Missing { .. })));
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");

    write_private(&path, "{\n  \"format\": 1,\n  oops\n}");
    let error = AccessFile::load(&path).unwrap_err().to_string();
    assert!(error.contains("line 3 column 3"), "{error}");

    let error = AccessFile::load(dir.path()).unwrap_err();
    assert!(matches!(error, AccessError::File(FileError::NotAFile { .. })), "{error}");

    write_private(&path, vec![b' '; 1 << 20]);
    let error = AccessFile::load(&path).unwrap_err();
    assert!(matches!(error, AccessError::File(FileError::TooLarge { .. })), "{error}");

    // Another format is recognized even if nothing else of it is.
    write_private(&path, r#"{"format": 2, "place": "elsewhere"}"#);
    let error = AccessFile::load(&path).unwrap_err();
    assert!(matches!(error, AccessError::Format { format: 2, .. }), "{error}");

    let error = load_edited(|file| file["addresses"] = serde_json::json!([])).unwrap_err();
    assert!(matches!(error, AccessError::Incomplete { field: "addresses", .. }), "{error}");
    let error = load_edited(|file| file["fingerprint"] = serde_json::Value::Null).unwrap_err();
    assert!(matches!(error, AccessError::Incomplete { field: "fingerprint", .. }), "{error}");
    let error = load_edited(|file| file["level"] = "strong".into()).unwrap_err();
    assert!(matches!(error, AccessError::Malformed { .. }), "{error}");
}

#[test]
fn a_damaged_secret_is_not_repeated_in_the_message() {
    let telltale = "5ec2e75ec2e75ec2e7";
    for damaged in [telltale.to_owned(), format!("{telltale:z<64}")] {
        let error = load_edited(|file| file["secrets"]["owner"] = damaged.into()).unwrap_err();
        assert!(matches!(error, AccessError::Malformed { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains(telltale), "{error}");
    }
    let file = load_edited(|_| {}).unwrap();
    assert!(format!("{file:?}").contains("Secret(…)"));
}

#[test]
fn a_damaged_identity_is_neither_used_nor_replaced() {
    let dir = directory();
    let path = dir.path().join("identity.json");
    Identity::open(dir.path()).unwrap();
    let good: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let check = |content: Vec<u8>| {
        write_private(&path, &content);
        let error = Identity::open(dir.path()).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), content);
        error
    };
    assert!(matches!(check(Vec::new()), IdentityError::Malformed { .. }));
    for (field, value) in [("master", "12"), ("dispatcher", "zz")] {
        let mut damaged = good.clone();
        damaged[field] = value.into();
        let error = check(serde_json::to_vec(&damaged).unwrap());
        assert!(matches!(error, IdentityError::Malformed { .. }), "{error}");
    }
    for field in ["certificate", "private_key"] {
        let mut damaged = good.clone();
        damaged[field] = "no PEM".into();
        let error = check(serde_json::to_vec(&damaged).unwrap());
        assert!(matches!(error, IdentityError::Pem { .. }), "{error}");
    }
    let mut newer = good.clone();
    newer["format"] = 9.into();
    let error = check(serde_json::to_vec(&newer).unwrap());
    assert!(matches!(error, IdentityError::Format { format: 9, .. }), "{error}");
}

#[test]
fn the_explicit_file_goes_before_the_variable_and_that_before_the_default() {
    let dir = directory();
    let home = dir.path().join("home");
    let state = dir.path().join("state");
    let mut places = Places {
        falkon_access: Some("/from/variable".into()),
        xdg_state_home: Some(state.clone().into()),
        home: Some(home.clone().into()),
    };
    let explicit = Path::new("/from/option");
    assert_eq!(AccessFile::find(Some(explicit), &places).unwrap(), explicit);
    assert_eq!(AccessFile::find(None, &places).unwrap(), Path::new("/from/variable"));

    places.falkon_access = None;
    let error = AccessFile::find(None, &places).unwrap_err().to_string();
    let in_state = state.join("falkon/access.json");
    assert!(error.contains(in_state.to_str().unwrap()), "{error}");
    fs::create_dir_all(in_state.parent().unwrap()).unwrap();
    fs::write(&in_state, "").unwrap();
    assert_eq!(AccessFile::find(None, &places).unwrap(), in_state);

    // A relative path in the variable does not count.
    places.xdg_state_home = Some("state".into());
    let in_home = home.join(".local/state/falkon");
    assert_eq!(places.default_directory().unwrap(), in_home);
    assert!(Places::default().default_directory().is_none());
    let error = AccessFile::find(None, &Places::default()).unwrap_err();
    assert!(matches!(error, AccessError::NotFound { default_place: None }), "{error}");
}

proptest! {
    #[test]
    fn no_content_makes_loading_panic(content in prop::collection::vec(any::<u8>(), 0..400)) {
        let dir = directory();
        let path = dir.path().join("identity.json");
        write_private(&path, &content);
        prop_assert!(AccessFile::load(&path).is_err());
        prop_assert!(Identity::open(dir.path()).is_err());
    }
}
