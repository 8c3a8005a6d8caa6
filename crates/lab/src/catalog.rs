//! The experiments that come with the program.

use crate::definition::Experiment;

/// Names and texts of all files in `experiments/`, in the order of names.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// All of them.
///
/// # Panics
/// If a file has faults, which the tests of this crate exclude.
pub fn all() -> Vec<Experiment> {
    let read = |(name, text): &(&str, &str)| {
        Experiment::read(text)
            .unwrap_or_else(|faults| panic!("experiments/{name}.toml: {}", faults.join("; ")))
    };
    FILES.iter().map(read).collect()
}

/// Those named; `all` names all.
///
/// # Errors
/// The names that are none.
pub fn named(names: &[String]) -> Result<Vec<Experiment>, Vec<String>> {
    let all = all();
    if names.iter().any(|name| name == "all") {
        return Ok(all);
    }
    let unknown = names.iter().filter(|name| !all.iter().any(|experiment| experiment.header.name == **name));
    let faults: Vec<String> = unknown.map(|name| format!("no experiment is called '{name}'")).collect();
    if faults.is_empty() {
        Ok(all.into_iter().filter(|experiment| names.contains(&experiment.header.name)).collect())
    } else {
        Err(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_sound_and_named_as_its_experiment() {
        for (name, text) in FILES {
            let experiment = Experiment::read(text).unwrap_or_else(|faults| panic!("{name}: {faults:#?}"));
            assert_eq!(experiment.header.name, *name);
            assert!(
                !experiment.claims.is_empty() && !experiment.plots.is_empty(),
                "{name} shows and claims something"
            );
        }
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert_eq!(named(&["nothing".to_owned()]).unwrap_err(), ["no experiment is called 'nothing'"]);
        assert_eq!(named(&["all".to_owned()]).unwrap().len(), FILES.len());
    }
}
