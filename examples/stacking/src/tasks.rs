//! The task file for Falkon: JSON Lines, one task per cut-out, and one that stacks them all.

use std::fmt::Write;

use crate::catalogue::PlannedCut;
use crate::generate::{CATALOGUE, CUTS};

/// A text as JSON writes it.
struct Json<'a>(&'a str);

impl std::fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A list of texts as JSON writes it.
fn json_list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| Json(item).to_string()).collect();
    format!("[{}]", items.join(","))
}

/// The task file's text. `program` and `folder` are absolute paths.
///
/// Images, lists and results are data objects that stand in a task under the paths that they have
/// in the folder. Cut-outs are objects that only tasks need: they go from cache to cache, and the
/// stack depends on all of them because they are its inputs.
pub(crate) fn to_json_lines(program: &str, folder: &str, cuts: &[PlannedCut]) -> String {
    let mut text = String::new();
    let mut push = |id: &str, args: &[&str], inputs: &[String], outputs: &[String]| {
        let args = json_list(args.iter().copied());
        let [inputs, outputs] =
            [inputs, outputs].map(|list| json_list(list.iter().map(String::as_str)));
        let (id, command) = (Json(id), Json(program));
        text += &format!(
            "{{\"id\":{id},\"command\":{command},\"args\":{args},\"inputs\":{inputs},\
             \"outputs\":{outputs}}}\n"
        );
    };
    let stored = |path: &str| format!("{path}={folder}/{path}");
    let cached = |path: &str| format!("{path}=cache:{path}");
    let paths: Vec<String> = cuts.iter().map(|cut| cut.cut.display().to_string()).collect();
    for (path, planned) in paths.iter().zip(cuts) {
        let id = planned.cut.file_stem().unwrap_or_default().to_string_lossy();
        let image = planned.image.display().to_string();
        let [ra, dec] = [planned.position.ra_deg, planned.position.dec_deg].map(|d| d.to_string());
        let args = ["cut", &image, &ra, &dec, &planned.size_px.to_string(), path];
        push(&id, &args, &[stored(&image)], &[cached(path)]);
    }
    let outputs = ["stack.fits", "stack.png", "sn.csv"];
    let args = [
        "stack",
        "--cuts",
        CUTS,
        "--catalogue",
        CATALOGUE,
        "--out",
        outputs[0],
        "--png",
        outputs[1],
        "--table",
        outputs[2],
    ];
    let lists = [CUTS, CATALOGUE].map(stored);
    let inputs: Vec<String> =
        lists.into_iter().chain(paths.iter().map(|path| cached(path))).collect();
    push("stack", &args, &inputs, &outputs.map(stored));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wcs::SkyPosition;

    #[test]
    fn tasks_are_lines_of_json() {
        let position = SkyPosition { ra_deg: 150.25, dec_deg: -2.5 };
        let (cut, image) = ("cuts/cut-00000.fits".into(), "images/img-0003.fits".into());
        let cuts = [PlannedCut { cut, image, position, size_px: 41 }];
        let text = to_json_lines("/bin/\"stacking\"", "/a\\b\n", &cuts);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                r#"{"id":"cut-00000","command":"/bin/\"stacking\"","args":["cut","images/img-0003.fits","150.25","-2.5","41","cuts/cut-00000.fits"],"inputs":["images/img-0003.fits=/a\\b\u000a/images/img-0003.fits"],"outputs":["cuts/cut-00000.fits=cache:cuts/cut-00000.fits"]}"#,
                r#"{"id":"stack","command":"/bin/\"stacking\"","args":["stack","--cuts","cuts.csv","--catalogue","catalogue.csv","--out","stack.fits","--png","stack.png","--table","sn.csv"],"inputs":["cuts.csv=/a\\b\u000a/cuts.csv","catalogue.csv=/a\\b\u000a/catalogue.csv","cuts/cut-00000.fits=cache:cuts/cut-00000.fits"],"outputs":["stack.fits=/a\\b\u000a/stack.fits","stack.png=/a\\b\u000a/stack.png","sn.csv=/a\\b\u000a/sn.csv"]}"#,
            ]
        );
    }
}
