//! Clients that mean ill give content and ids names that are not theirs.

use super::services::{end, executor, with_files};
use crate::fixture::{Access, Client, Site};
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::dispatch::{AccessError, InstanceOptions, Purpose};
use falkon_core::task::{Rows, Submission, TaskClass, TaskId};
use falkon_net::ids::object_id;
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::command::{CommandTemplate, Template};
use falkon_wire::message::{FromClient, Refusal, ToClient};
use std::sync::Arc;

fn object(url: &str, version: &str) -> Object {
    let id = object_id(url, version);
    Object { id, url: url.into(), version: version.into(), size: Some(5) }
}

/// A task that reads an object.
fn reads(object: Object) -> Submission {
    let inputs = Lists::Same(vec![0]);
    let data = Declared { objects: Arc::new(vec![object]), inputs, outputs: Lists::default() };
    Submission {
        count: 1,
        template: Arc::new(Template::Command(CommandTemplate::default()).to_bytes()),
        rows: Rows::Computed { factors: Vec::new(), offset: 0 },
        classes: vec![TaskClass::default()],
        class_runs: vec![(1, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: Some(Arc::new(data)),
    }
}

#[trial]
fn nobody_puts_content_under_the_name_of_a_file_or_of_another_object() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    let path = site.text("files/1");
    let args = ["--wait", "--input", &format!("in={path}"), "--", "cat", "in"];
    let read = |access: &Access<'_>| access.run("submit", &args).exits(0).text().to_owned();
    let right = read(&access);
    let held = access.run_sub(&["data", "ls"], &["--json"]).exits(0).results().remove(0);
    let version = held["version"].as_str().unwrap();
    let hash = format!("blake3:{}", blake3::hash(b"wrong").to_hex());

    let mut client = Client::connect(&dispatcher.access_of("access-client.json"));
    let mut put = |object: Object| {
        let purpose = Purpose::Put;
        match client.ask(&FromClient::Reach { request: 1, instance: None, object, purpose }) {
            ToClient::Refused { reason, .. } => Some(reason),
            ToClient::Reached { .. } => None,
            other => panic!("{other:?}"),
        }
    };
    let not_placeable = Some(Refusal::Access(AccessError::NotPlaceable));
    for (url, version) in
        [(&*path, version), (&path, &hash), ("cache:k", version), ("cache:k", "made:1"), ("", "")]
    {
        assert_eq!(put(object(url, version)), not_placeable, "{url} {version}");
    }
    // Its own name, and the id of the file: a ticket is for the id.
    let (file, key) = (object(&path, version), object("cache:k", &hash));
    let refused = put(Object { id: file.id, ..key.clone() });
    assert_eq!(refused, Some(Refusal::WrongId { id: file.id, url: "cache:k".into() }));
    assert_eq!(put(key.clone()), None);

    // A task that brings the content of one URL in as another object.
    let create = FromClient::Create { request: 2, options: InstanceOptions::default() };
    let ToClient::Created { instance, .. } = client.ask(&create) else { panic!("not created") };
    let mut submit = |object: Object| {
        let (first, submission) = (TaskId(0), reads(object));
        client.ask(&FromClient::Submit { request: 3, instance, first, client: 1, submission })
    };
    for id in [file.id, ObjectId(0), ObjectId(key.id.0 ^ 1)] {
        let answer = submit(Object { id, ..key.clone() });
        let ToClient::Refused { reason, .. } = answer else { panic!("{answer:?}") };
        assert!(reason.to_string().contains("the data object cache:k"), "{reason}");
        assert_eq!(reason, Refusal::WrongId { id, url: key.url.clone() });
    }
    let answer = submit(key);
    assert!(matches!(answer, ToClient::Accepted { count: 1, .. }), "{answer:?}");
    assert_eq!(read(&access), right);
    end([a]);
}
