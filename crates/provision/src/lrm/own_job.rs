//! The batch job that a process is in: how it starts programs on the nodes of that job.

use std::path::{Path, PathBuf};

/// A command that runs a program on nodes of the job. Its standard input reaches the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// What starts it.
    pub program: &'static str,
    /// The words before those of the program.
    pub words: Vec<String>,
    /// The words of the program are put together again by a shell.
    pub by_shell: bool,
    /// How many nodes it runs on, one process each.
    pub nodes: u32,
    /// The CPUs of each that the job has, where a process there cannot tell itself.
    pub cpus: Option<u32>,
}

/// Why the nodes of the job cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OwnJobError {
    /// No batch scheduler has left a trace in the environment.
    #[error(
        "this is no batch job whose nodes can be told (Slurm, Grid Engine, PBS and LSF are known \
         by the variables SLURM_JOB_NUM_NODES, PE_HOSTFILE, PBS_NODEFILE and LSB_MCPU_HOSTS)"
    )]
    None,
    /// The list of hosts cannot be read.
    #[error("cannot read the list of this job's hosts, {}: {error}", path.display())]
    Hosts {
        /// The list.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The list of hosts names none.
    #[error("the list of this job's hosts is empty")]
    Empty,
    /// The job is smaller.
    #[error("this job has {there} nodes, not {wanted}")]
    Few {
        /// What it has.
        there: u32,
        /// What was wanted.
        wanted: u32,
    },
}

/// How to start a process on each of `wanted` nodes of this job, or on all of them. `variable`
/// looks into the environment, `read` reads a file.
///
/// Slurm: one `srun` for all nodes. Grid Engine: `qrsh -inherit` for each host of `PE_HOSTFILE`.
/// LSF: `blaunch` for each of `LSB_MCPU_HOSTS`. PBS: `ssh` to each host of `PBS_NODEFILE`, which
/// sites allow within a job.
///
/// # Errors
/// See [`OwnJobError`].
pub fn launches(
    wanted: Option<u32>,
    variable: impl Fn(&str) -> Option<String>,
    read: impl Fn(&Path) -> std::io::Result<String>,
) -> Result<Vec<Launch>, OwnJobError> {
    let nodes = variable("SLURM_JOB_NUM_NODES").and_then(|nodes| nodes.trim().parse().ok());
    if let Some(there) = nodes.filter(|_| variable("SLURM_JOB_ID").is_some()) {
        return Ok(vec![srun(enough(wanted, there)?)]);
    }
    let list = |name: &str| -> Option<Result<String, OwnJobError>> {
        let path = PathBuf::from(variable(name)?);
        Some(read(&path).map_err(|error| OwnJobError::Hosts { path, error }))
    };
    let (hosts, program, before): (Vec<(String, u32)>, _, &[&str]) =
        if let Some(text) = list("PE_HOSTFILE") {
            // HOST SLOTS QUEUE PROCESSORS
            (pairs(text?.lines()), "qrsh", &["-inherit"])
        } else if let Some(text) = variable("LSB_MCPU_HOSTS") {
            // HOST SLOTS HOST SLOTS …
            let words: Vec<&str> = text.split_whitespace().collect();
            let lines: Vec<String> = words.chunks(2).map(|pair| pair.join(" ")).collect();
            (pairs(lines.iter().map(String::as_str)), "blaunch", &[])
        } else if let Some(text) = list("PBS_NODEFILE") {
            // A line for each process of MPI.
            (pairs(text?.lines()), "ssh", &["-o", "BatchMode=yes"])
        } else {
            return Err(OwnJobError::None);
        };
    if hosts.is_empty() {
        return Err(OwnJobError::Empty);
    }
    let count = enough(wanted, u32::try_from(hosts.len()).unwrap_or(u32::MAX))?;
    let cpus_of = |slots| (program != "ssh").then_some(slots);
    let launch = |(host, slots): (String, u32)| Launch {
        program,
        words: before.iter().map(|word| (*word).to_owned()).chain([host]).collect(),
        by_shell: true,
        nodes: 1,
        cpus: cpus_of(slots),
    };
    Ok(hosts.into_iter().take(count as usize).map(launch).collect())
}

fn enough(wanted: Option<u32>, there: u32) -> Result<u32, OwnJobError> {
    match wanted {
        Some(wanted) if wanted > there => Err(OwnJobError::Few { there, wanted }),
        Some(wanted) => Ok(wanted),
        None => Ok(there),
    }
}

/// One process on each node, which shares the job's CPUs and memory with what else runs there.
fn srun(nodes: u32) -> Launch {
    let words = [
        "--overlap",
        "--quiet",
        "--mpi=none",
        "--cpu-bind=none",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--ntasks-per-node=1",
    ];
    let words = words.iter().map(|word| (*word).to_owned());
    let words = words.chain([format!("--nodes={nodes}"), format!("--ntasks={nodes}")]).collect();
    Launch { program: "srun", words, by_shell: false, nodes, cpus: None }
}

/// Hosts with their slots: the lines of a host together, a line without a number is a slot.
fn pairs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, u32)> {
    let mut hosts: Vec<(String, u32)> = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        let slots = words.next().and_then(|slots| slots.parse().ok()).unwrap_or(1);
        match hosts.iter_mut().find(|(known, _)| known == host) {
            Some((_, sum)) => *sum = sum.saturating_add(slots),
            None => hosts.push((host.to_owned(), slots)),
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(wanted: Option<u32>, environment: &[(&str, &str)]) -> Result<Vec<Launch>, OwnJobError> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = |path: &Path| match path.to_str() {
            Some("/pe") => {
                Ok("n1 4 all.q@n1 <NULL>\nn2 2 all.q@n2 <NULL>\nn1 1 b.q UNDEFINED\n".into())
            }
            Some("/pbs") => Ok("a\na\nb\n".to_owned()),
            Some("/empty") => Ok("\n".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        launches(wanted, variable, read)
    }

    fn hosts(launches: &[Launch]) -> Vec<(String, Option<u32>)> {
        launches.iter().map(|launch| (launch.words.join(" "), launch.cpus)).collect()
    }

    #[test]
    fn each_scheduler_says_which_nodes_a_job_has() {
        let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "3")];
        let found = told(None, &slurm).unwrap();
        assert_eq!((found.len(), found[0].program, found[0].nodes), (1, "srun", 3));
        assert!(found[0].words.contains(&"--nodes=3".to_owned()));
        assert_eq!(told(Some(2), &slurm).unwrap()[0].nodes, 2);
        let text = told(Some(4), &slurm).unwrap_err().to_string();
        assert_eq!(text, "this job has 3 nodes, not 4");

        let found = told(None, &[("PE_HOSTFILE", "/pe")]).unwrap();
        let expected = [("-inherit n1".to_owned(), Some(5)), ("-inherit n2".to_owned(), Some(2))];
        assert_eq!(hosts(&found), expected);
        let found = told(Some(1), &[("LSB_MCPU_HOSTS", "h1 16 h2 8")]).unwrap();
        assert_eq!(hosts(&found), [("h1".to_owned(), Some(16))]);
        let found = told(None, &[("PBS_NODEFILE", "/pbs")]).unwrap();
        assert_eq!(found[1].words, ["-o", "BatchMode=yes", "b"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn what_is_no_job_is_said_to_be_none() {
        assert!(matches!(told(None, &[]), Err(OwnJobError::None)));
        assert!(matches!(told(None, &[("SLURM_JOB_NUM_NODES", "3")]), Err(OwnJobError::None)));
        assert!(matches!(told(None, &[("PE_HOSTFILE", "/x")]), Err(OwnJobError::Hosts { .. })));
        assert!(matches!(told(None, &[("PBS_NODEFILE", "/empty")]), Err(OwnJobError::Empty)));
    }
}
