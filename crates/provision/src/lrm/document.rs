//! Documents that an LRM is given as JSON: templates whose texts are filled
//! each by itself, so that no value can leave its place.

use super::template::{FillError, Template, Values};
use serde::Deserialize;
use serde_json::Value as Json;

/// A document. It is TOML; a text of it is a template, and so are names.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// The contents of the document.
    pub content: toml::Table,
    /// Names whose texts stand for whole numbers.
    pub numbers: Vec<String>,
}

impl Document {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Puts what `over` says in the place of what this says: tables are taken
    /// together, and so are those of lists that have the same `name`; other
    /// tables with a name are added to the list.
    pub(super) fn overlay(&mut self, over: &toml::Table) {
        overlay(&mut self.content, over);
    }

    /// All texts of it.
    pub(super) fn texts(&self) -> Vec<&String> {
        let mut texts = Vec::new();
        for (name, value) in &self.content {
            texts.push(name);
            gather(value, &mut texts);
        }
        texts
    }

    /// Fills it. What has a placeholder without a value is left out.
    ///
    /// # Errors
    /// A placeholder is not known, or its value cannot stand where it does.
    pub(super) fn fill(&self, values: &Values) -> Result<String, FillError> {
        Ok(Json::Object(self.table(&self.content, values)?).to_string())
    }

    fn table(
        &self,
        table: &toml::Table,
        values: &Values,
    ) -> Result<serde_json::Map<String, Json>, FillError> {
        let mut filled = serde_json::Map::new();
        for (name, value) in table {
            let Some(key) = template(name)?.words(values)? else { continue };
            let Some(mut value) = self.value(value, values)? else { continue };
            if self.numbers.contains(name)
                && let Some(text) = value.as_str()
            {
                let why = "is no whole number";
                let unfit = |_| FillError::Unfit { name: name.clone(), why };
                value = text.parse::<u64>().map_err(unfit)?.into();
            }
            filled.insert(key.concat(), value);
        }
        Ok(filled)
    }

    fn value(&self, value: &toml::Value, values: &Values) -> Result<Option<Json>, FillError> {
        Ok(Some(match value {
            toml::Value::String(text) => {
                let template = template(text)?;
                let Some(mut words) = template.words(values)? else { return Ok(None) };
                match words.pop() {
                    Some(word) if words.is_empty() && !template.is_list(values) => word.into(),
                    last => Json::Array(words.into_iter().chain(last).map(Json::from).collect()),
                }
            }
            toml::Value::Integer(number) => (*number).into(),
            toml::Value::Float(number) => (*number).into(),
            toml::Value::Boolean(flag) => (*flag).into(),
            toml::Value::Datetime(time) => time.to_string().into(),
            toml::Value::Array(items) => {
                let mut filled = Vec::new();
                for item in items {
                    filled.extend(self.value(item, values)?);
                }
                Json::Array(filled)
            }
            toml::Value::Table(table) => Json::Object(self.table(table, values)?),
        }))
    }
}

/// A template that was checked when the description was read.
fn template(text: &str) -> Result<Template, FillError> {
    Template::new(text).map_err(|_| FillError::Unknown(text.to_owned()))
}

fn gather<'a>(value: &'a toml::Value, texts: &mut Vec<&'a String>) {
    match value {
        toml::Value::String(text) => texts.push(text),
        toml::Value::Array(items) => items.iter().for_each(|item| gather(item, texts)),
        toml::Value::Table(table) => {
            for (name, value) in table {
                texts.push(name);
                gather(value, texts);
            }
        }
        _ => {}
    }
}

fn overlay(under: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => overlay(under, over),
            (Some(toml::Value::Array(under)), toml::Value::Array(over))
                if over.iter().all(|item| name_of(item).is_some()) =>
            {
                add_named(under, over);
            }
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

fn name_of(item: &toml::Value) -> Option<&toml::Value> {
    item.as_table()?.get("name")
}

/// Adds tables to a list; those whose name is there already are taken together.
fn add_named(under: &mut Vec<toml::Value>, over: &[toml::Value]) {
    for item in over {
        let known = under.iter_mut().find(|known| name_of(known) == name_of(item));
        match (known.and_then(toml::Value::as_table_mut), item.as_table()) {
            (Some(known), Some(item)) => overlay(known, item),
            _ => under.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Document;
    use crate::lrm::template::Values;
    use proptest::prelude::*;
    use serde_json::json;

    fn document(text: &str) -> Document {
        toml::from_str(text).unwrap()
    }

    fn values(text: &str) -> Values {
        let mut values = Values::default();
        values.set("text", text);
        values.set("count", "3");
        values.set_list("list", vec!["a".into()]);
        values.set_some("none", None);
        values
    }

    #[test]
    fn texts_numbers_lists_and_what_is_left_out() {
        let document = document(
            "numbers = [\"n\"]\n[content]\nn = \"{{count}}\"\ns = \"{{count}}\"\n\
             gone = \"{{none}}\"\n\"{{none}}\" = 1\n\"{{text}}\" = true\n\
             all = [\"{{list}}\", \"x{{text}}\", \"{{none}}\", 1.5]\nhalf = { a = \"{{none}}\" }\n",
        );
        let filled: serde_json::Value =
            serde_json::from_str(&document.fill(&values("{{count}}")).unwrap()).unwrap();
        let expected = json!({
            "n": 3, "s": "3", "{{count}}": true, "half": {},
            "all": [["a"], "x{{count}}", 1.5],
        });
        assert_eq!(filled, expected);
        let unfit = self::document("numbers = [\"n\"]\n[content]\nn = \"{{text}}\"\n");
        assert!(unfit.fill(&values("many")).is_err());
        assert!(self::document("[content]\na = \"{{nonesuch}}\"").fill(&values("")).is_err());
    }

    #[test]
    fn what_is_put_over_it_meets_what_has_its_name() {
        let mut under = document(
            "[content]\na = 1\nplain = [1, 2]\n[[content.of]]\nname = \"x\"\nb = 1\nc = [1]\n",
        );
        let over = "a = 2\nplain = [3]\n[[of]]\nname = \"y\"\n[[of]]\nname = \"x\"\nb = 2\n";
        under.overlay(&over.parse().unwrap());
        let expected = document(
            "[content]\na = 2\nplain = [3]\n[[content.of]]\nname = \"x\"\nb = 2\nc = [1]\n\
             [[content.of]]\nname = \"y\"\n",
        );
        assert_eq!(under, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever a value is, it is one text of the document.
        #[test]
        fn no_value_breaks_out_of_a_document(text in "[^\0]*") {
            let document = document("[content]\na = \"<{{text}}>\"\nb = 1\n");
            let filled = document.fill(&values(&text)).unwrap();
            let read: serde_json::Value = serde_json::from_str(&filled).unwrap();
            prop_assert_eq!(read, json!({ "a": format!("<{text}>"), "b": 1 }));
        }
    }
}
