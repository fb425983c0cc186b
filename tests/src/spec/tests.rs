use std::path::{Path, PathBuf};
use std::{env, fs, process};

use super::{files_in, resolve};

/// A separate folder for a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[&str]) -> Self {
        let root = env::temp_dir().join(format!("poolhouse-spec-{}-{name}", process::id()));
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "{}").unwrap();
        }
        Self(root)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn names(root: &Path, subdir: &str) -> Vec<String> {
    files_in(root, subdir).unwrap().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn files_are_sorted_and_only_json_counts() {
    let folder = Folder::new("sorted", &["a/tests/two.json", "a/tests/one.json", "a/tests/one.yml", "b/other.json"]);
    assert_eq!(names(&folder.0, "a/tests"), ["one", "two"]);
}

#[test]
fn a_shared_stem_gets_its_folder_in_the_name() {
    let folder = Folder::new("stems", &["t/x/same.json", "t/y/same.json", "t/y/only.json"]);
    assert_eq!(names(&folder.0, "t"), ["x/same", "only", "y/same"]);
}

#[test]
fn checkout_with_a_source_folder_is_accepted() {
    let folder = Folder::new("checkout", &["source/a/one.json"]);
    assert_eq!(names(&folder.0, "a"), ["one"]);
}

#[test]
fn a_missing_or_empty_folder_is_a_reason() {
    let folder = Folder::new("missing", &["a/readme.md"]);
    let missing = files_in(&folder.0, "nowhere").unwrap_err();
    assert!(missing.to_string().contains("has no folder nowhere"), "{missing}");
    let empty = files_in(&folder.0, "a").unwrap_err();
    assert!(empty.to_string().contains("holds no .json file"), "{empty}");
}

#[cfg(unix)]
#[test]
fn a_link_back_to_its_own_folder_ends_the_walk() {
    let folder = Folder::new("cycle", &["a/one.json"]);
    std::os::unix::fs::symlink(folder.0.join("a"), folder.0.join("a/again")).unwrap();
    assert_eq!(names(&folder.0, "a"), ["one"]);
}

#[test]
fn a_relative_path_starts_at_the_workspace_root() {
    assert!(resolve(Path::new("core/Cargo.toml")).is_absolute());
    assert_eq!(resolve(Path::new("/nowhere")), Path::new("/nowhere"));
    assert_eq!(resolve(Path::new("no/such/folder")), Path::new("no/such/folder"));
}
