//! The resources that an LRM has granted a process on this node, from its
//! environment.

use falkon_process::TASK_KEY_VARIABLE;
use std::path::{Path, PathBuf};

/// The resources that a process may use. A resource that the LRM does not
/// mention is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Granted {
    /// CPUs.
    pub cpus: Option<u32>,
    /// GPUs.
    pub gpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// Reads what LRMs tell their jobs. `variable` looks into the environment and
/// `host` is this machine's name; of several values the least counts.
///
/// Slurm: `SLURM_CPUS_ON_NODE`, `SLURM_MEM_PER_NODE`, `SLURM_MEM_PER_CPU`,
/// `SLURM_GPUS_ON_NODE` (sbatch and srun manuals). Grid Engine: `NSLOTS` where
/// `NHOSTS` is 1. PBS: `NCPUS`; Torque: `PBS_NUM_PPN`. LSF: this host's share
/// in `LSB_MCPU_HOSTS`. HTCondor: the file that `_CONDOR_MACHINE_AD` names.
/// Kubernetes: what the description of its jobs has it put into
/// `FALKON_GRANTED_CPUS_MILLI`, `FALKON_GRANTED_MEMORY_BYTES` and
/// `FALKON_GRANTED_GPUS`; less than a CPU counts as one. GPUs otherwise from `CUDA_VISIBLE_DEVICES`,
/// `ROCR_VISIBLE_DEVICES` or `HIP_VISIBLE_DEVICES`.
#[must_use]
pub fn granted(variable: impl Fn(&str) -> Option<String>, host: &str) -> Granted {
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok().filter(|n| *n > 0);
    let slots = || number("NSLOTS").filter(|_| number("NHOSTS") == Some(1));
    let lsf = || {
        let hosts = variable("LSB_MCPU_HOSTS")?;
        let words: Vec<&str> = hosts.split_whitespace().collect();
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let own = words.chunks_exact(2).find(|pair| short(pair[0]) == short(host))?;
        own[1].parse().ok()
    };
    let ad = variable("_CONDOR_MACHINE_AD").and_then(|path| std::fs::read_to_string(path).ok());
    let advertised = |name: &str| of_ad(ad.as_deref()?, name);
    let cpus = [
        number("SLURM_CPUS_ON_NODE"),
        slots(),
        number("NCPUS"),
        number("PBS_NUM_PPN"),
        lsf(),
        advertised("Cpus"),
        number("FALKON_GRANTED_CPUS_MILLI").map(|milli| (milli / 1000).max(1)),
    ];
    let cpus = cpus.into_iter().flatten().min();
    let mib = |mib: u64| mib.saturating_mul(1 << 20);
    let per_cpu = number("SLURM_MEM_PER_CPU");
    let per_cpu = per_cpu.and_then(|memory| Some(memory.saturating_mul(cpus?)));
    let memory = number("SLURM_MEM_PER_NODE").into_iter().chain(per_cpu);
    let memory = memory.chain(advertised("Memory")).map(mib);
    let memory = memory.chain(number("FALKON_GRANTED_MEMORY_BYTES")).min();
    let few = |gpus: u64| u32::try_from(gpus).ok();
    let gpus = advertised("GPUs").and_then(few);
    let gpus = gpus
        .or_else(|| number("FALKON_GRANTED_GPUS").and_then(few))
        .or_else(|| visible_gpus(&variable))
        .or_else(|| number("SLURM_GPUS_ON_NODE").and_then(few));
    Granted {
        cpus: cpus.map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX)),
        gpus,
        memory_bytes: memory.into_iter().chain(cgroup_memory_bytes()).min(),
    }
}

/// How many GPUs the variables of NVIDIA's and AMD's runtimes leave a process;
/// `None` if none is set.
#[must_use]
pub fn visible_gpus(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let names = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
    let list = names.into_iter().find_map(variable)?;
    Some(list.split(',').filter(|gpu| !gpu.trim().is_empty()).count() as u32)
}

/// When the job that this process is part of will be ended, in seconds since
/// the Unix epoch, as far as its environment says: by the LRM itself
/// (`SLURM_JOB_END_TIME`, sbatch manual), or, for a job of `walltime_s`, by when
/// it began: `began_s`, or `JobCurrentStartDate` in the file that HTCondor's
/// `_CONDOR_JOB_AD` names. The earliest counts.
#[must_use]
pub fn ends_at(
    variable: impl Fn(&str) -> Option<String>,
    began_s: Option<u64>,
    walltime_s: Option<u64>,
) -> Option<u64> {
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok().filter(|n| *n > 0);
    let ad = variable("_CONDOR_JOB_AD").and_then(|path| std::fs::read_to_string(path).ok());
    let start = ad.and_then(|ad| of_ad(&ad, "JobCurrentStartDate"));
    let began = began_s.into_iter().chain(start).min();
    let counted = began.zip(walltime_s).map(|(began, walltime)| began.saturating_add(walltime));
    number("SLURM_JOB_END_TIME").into_iter().chain(counted).min()
}

/// A number of a ClassAd.
fn of_ad(ad: &str, name: &str) -> Option<u64> {
    let mut lines = ad.lines().filter_map(|line| line.split_once('='));
    lines.find(|(found, _)| found.trim().eq_ignore_ascii_case(name))?.1.trim().parse().ok()
}

/// The least memory limit of this process's control groups, if there is one.
fn cgroup_memory_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        limits.extend(limits_up(Path::new(root), path.trim_start_matches('/'), file));
    }
    limits.into_iter().min()
}

/// The limits of a group and all above it. Version 1 writes a huge number
/// where there is none.
fn limits_up(root: &Path, path: &str, file: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    let mut dir: PathBuf = root.join(path);
    while dir.starts_with(root) {
        let limit = std::fs::read_to_string(dir.join(file)).ok();
        let limit = limit.and_then(|limit| limit.trim().parse::<u64>().ok());
        limits.extend(limit.filter(|limit| *limit < 1 << 60));
        if !dir.pop() {
            break;
        }
    }
    limits
}

/// How many copies of this process were started side by side, if it is one of
/// several: by `srun` (`SLURM_STEP_NUM_TASKS`), Open MPI or an MPI of the MPICH
/// family. A command that a task of Falkon starts, or a call in a worker, is none:
/// it has these variables from the executor.
#[must_use]
pub fn copies(variable: impl Fn(&str) -> Option<String>) -> Option<u64> {
    if variable(TASK_KEY_VARIABLE).is_some() {
        return None;
    }
    ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]
        .into_iter()
        .filter_map(|name| variable(name)?.trim().parse::<u64>().ok())
        .find(|copies| *copies > 1)
}

#[cfg(test)]
mod tests {
    use super::{Granted, copies, ends_at, granted, limits_up};
    use falkon_process::TASK_KEY_VARIABLE;

    #[track_caller]
    fn check(environment: &[(&str, &str)], cpus: Option<u32>, gpus: Option<u32>, mib: Option<u64>) {
        let look = |name: &str| {
            environment
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let found = granted(look, "n7.example.org");
        let unlimited = granted(|_| None, "x").memory_bytes;
        let memory = mib.map(|mib| mib << 20).into_iter().chain(unlimited).min();
        assert_eq!(found, Granted { cpus, gpus, memory_bytes: memory });
    }

    #[test]
    fn schedulers_say_what_they_grant() {
        check(&[], None, None, None);
        check(&[("SLURM_CPUS_ON_NODE", "2"), ("SLURM_MEM_PER_CPU", "3")], Some(2), None, Some(6));
        check(&[("SLURM_CPUS_ON_NODE", "4"), ("SLURM_MEM_PER_NODE", "1")], Some(4), None, Some(1));
        check(&[("NSLOTS", "8"), ("NHOSTS", "1")], Some(8), None, None);
        check(&[("NSLOTS", "8"), ("NHOSTS", "2")], None, None, None);
        check(&[("LSB_MCPU_HOSTS", "n6 4 n7 3")], Some(3), None, None);
        check(&[("ROCR_VISIBLE_DEVICES", "0,3")], None, Some(2), None);
        check(&[("HIP_VISIBLE_DEVICES", "1")], None, Some(1), None);
        check(&[("NCPUS", "5"), ("CUDA_VISIBLE_DEVICES", "0,3")], Some(5), Some(2), None);
        let pod = [
            ("FALKON_GRANTED_CPUS_MILLI", "2900"),
            ("FALKON_GRANTED_MEMORY_BYTES", "1048576"),
            ("FALKON_GRANTED_GPUS", ""),
        ];
        check(&pod, Some(2), None, Some(1));
        check(&[("SLURM_CPUS_ON_NODE", "many"), ("CUDA_VISIBLE_DEVICES", "")], None, Some(0), None);
    }

    #[test]
    fn a_walltime_is_the_schedulers_and_counts_from_the_jobs_beginning() {
        let ends = |environment: &[(&str, &str)], began, walltime| {
            let look = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name)?;
                Some(found.1.to_owned())
            };
            ends_at(look, began, walltime)
        };
        assert_eq!(ends(&[], None, Some(60)), None);
        assert_eq!(ends(&[], Some(1000), Some(60)), Some(1060));
        assert_eq!(ends(&[], Some(1000), None), None);
        let slurm = [("SLURM_JOB_END_TIME", "1050")];
        assert_eq!(ends(&slurm, None, None), Some(1050));
        assert_eq!(ends(&slurm, Some(1000), Some(60)), Some(1050));
        assert_eq!(ends(&slurm, Some(1000), Some(40)), Some(1040));
        let ad = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ad.path(), "JobCurrentStartDate = 2000\nJobStatus = 2\n").unwrap();
        let ad = [("_CONDOR_JOB_AD", ad.path().to_str().unwrap())];
        assert_eq!(ends(&ad, None, Some(60)), Some(2060));
    }

    #[test]
    fn copies_are_those_of_srun_and_mpirun_and_nothing_that_an_executor_starts() {
        let check = |environment: &[(&str, &str)], expected| {
            let look = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name)?;
                Some(found.1.to_owned())
            };
            assert_eq!(copies(look), expected, "{environment:?}");
        };
        check(&[], None);
        // A batch script was granted these tasks, and is one process.
        check(&[("SLURM_NTASKS", "4")], None);
        check(&[("SLURM_STEP_NUM_TASKS", "1")], None);
        check(&[("SLURM_STEP_NUM_TASKS", "4")], Some(4));
        check(&[("OMPI_COMM_WORLD_SIZE", "2")], Some(2));
        check(&[("SLURM_STEP_NUM_TASKS", "1"), ("PMI_SIZE", "3")], Some(3));
        // Every process of an executor has this one, workers included.
        check(&[("SLURM_STEP_NUM_TASKS", "4"), (TASK_KEY_VARIABLE, "1:2")], None);
    }

    #[test]
    fn htcondor_says_it_in_a_file() {
        let ad = tempfile::NamedTempFile::new().unwrap();
        // The text is HTCondor 23.9's, without fields that are of no use here.
        let text = "AssignedGPUs = \"\"\nCpus = 2\nGPUs = 0\nMemory = 128\nTotalSlotCpus = 8\n";
        std::fs::write(ad.path(), text).unwrap();
        let path = ad.path().to_str().unwrap();
        let cuda = ("CUDA_VISIBLE_DEVICES", "10000");
        check(&[("_CONDOR_MACHINE_AD", path), cuda], Some(2), Some(0), Some(128));
        check(&[("_CONDOR_MACHINE_AD", "/nowhere")], None, None, None);
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::fs::write(root.path().join("a/limit"), "4096\n").unwrap();
        std::fs::write(root.path().join("a/b/limit"), "max\n").unwrap();
        std::fs::write(root.path().join("limit"), "9223372036854771712\n").unwrap();
        assert_eq!(limits_up(root.path(), "a/b", "limit"), [4096]);
    }
}
