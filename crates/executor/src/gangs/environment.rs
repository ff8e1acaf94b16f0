//! What processes of a gang find in their environment: who else is there, and how launchers of
//! parallel programs get to them.
//!
//! | launcher | hosts | remote shell |
//! |---|---|---|
//! | Hydra: MPICH, MVAPICH | `HYDRA_HOST_FILE` | `HYDRA_LAUNCHER`, `HYDRA_LAUNCHER_EXEC` |
//! | Hydra of Intel MPI | `I_MPI_HYDRA_HOST_FILE` | `I_MPI_HYDRA_BOOTSTRAP`, `…_BOOTSTRAP_EXEC` |
//! | ORTE: Open MPI to 4 | `OMPI_MCA_orte_default_hostfile` | `OMPI_MCA_plm_rsh_agent` |
//! | PRRTE: Open MPI from 5 | `PRTE_MCA_prte_default_hostfile` | `PRTE_MCA_plm_ssh_agent` |
//!
//! Slurm's `srun` needs no remote shell. Its own variables would mislead the launchers above, so
//! its options are in one variable, which the command names.

use falkon_core::gang::GangToken;
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// A variable of a task's environment, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// By what processes of a gang find their executor: `SOCKET:TOKEN`.
pub const GANG_VARIABLE: &str = "FALKON_GANG";

/// The options by which `srun` starts ranks on the gang's nodes, within the job around it.
const SRUN_VARIABLE: &str = "FALKON_SRUN";

/// Where Slurm's programs find their cluster, if not at the usual place.
const SLURM_CONF: &str = "SLURM_CONF";

/// The longest list of nodes in one variable: kernels refuse longer ones than 128 KiB.
const NODES_BYTES_MAX: usize = 64 << 10;

/// The name of the program that stands in for a remote shell.
pub const RSH_PROGRAM: &str = "falkon-rsh";

/// How the variables begin by which launchers recognize a batch job, or another launcher, around
/// them. They would start processes by its means, which know nothing of the gang.
const OF_JOBS: [&str; 16] = [
    "ALPS_",
    "COBALT_",
    "HYDI_",
    "LSB_",
    "LSF_",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "OMPI_",
    "PALS_",
    "PBS_",
    "PE_HOSTFILE",
    "PMIX_",
    "PMI_",
    "PRTE_",
    "SLURM",
    "SRUN_",
];

/// The variables with which launchers tell processes their ranks. Open MPI sets the first two.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

/// How many remote shells Open MPI starts at once by default.
const RSH_CONCURRENT_MIN: usize = 128;

/// The longest path of a socket that the system takes has 107 bytes; some are for its name.
const FOLDER_BYTES_MAX: usize = 96;

/// The names of the variables that processes of a gang do not inherit, by their beginnings.
pub(crate) fn without() -> Vec<Vec<u8>> {
    OF_JOBS.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// The names of the variables that have the ranks of a gang's processes.
pub(crate) fn ranked_by() -> Vec<Vec<u8>> {
    RANKS.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// A gang's directory on this node, with its files; removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the directory `name` in one of `places`: where its path is short, and needs no
    /// quotes.
    pub(super) fn make(places: &[&Path], name: &str) -> io::Result<Folder> {
        let is_good = |path: &Path| {
            let bytes = path.as_os_str().as_bytes();
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@%=".contains(byte);
            bytes.len() <= FOLDER_BYTES_MAX && path.is_absolute() && bytes.iter().all(is_plain)
        };
        let mut paths = places.iter().map(|place| place.join(name)).filter(|path| is_good(path));
        let path = paths.next().ok_or(io::ErrorKind::InvalidFilename)?;
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where processes of the gang reach their executor.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// Writes the files, for nodes of these names that start so many processes each, and says
    /// what processes find in their environment.
    pub(super) fn fill(
        &self,
        hosts: &[String],
        ranks: u32,
        token: &GangToken,
        program: &Path,
    ) -> io::Result<Vec<Variable>> {
        let [mut names, mut counted, mut slots] = [String::new(), String::new(), String::new()];
        for host in hosts {
            // Writing to a string cannot fail.
            let _ = writeln!(names, "{host}");
            let _ = writeln!(counted, "{host}:{ranks}");
            let _ = writeln!(slots, "{host} slots={ranks}");
        }
        let file = |name: &str, text: &str| {
            let path = self.path.join(name);
            fs::write(&path, text).map(|()| path)
        };
        let nodes = file("nodes", &names)?;
        let hydra = file("hosts", &counted)?;
        let open_mpi = file("hosts-openmpi", &slots)?;
        let shell = self.path.join(RSH_PROGRAM);
        symlink(program, &shell)?;
        let mut gang = self.socket().into_os_string().as_bytes().to_vec();
        gang.push(b':');
        for byte in token.0 {
            gang.extend_from_slice(format!("{byte:02x}").as_bytes());
        }
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let text = |text: &str| text.as_bytes().to_vec();
        // One that is longer than the kernel takes would let nothing start; the file has it.
        let all = hosts.join(",").into_bytes();
        let all = (all.len() <= NODES_BYTES_MAX).then(|| (text("FALKON_NODES"), all));
        let concurrent = hosts.len().max(RSH_CONCURRENT_MIN).to_string().into_bytes();
        let set = [
            (GANG_VARIABLE, gang),
            ("FALKON_NODE_FILE", path(&nodes)),
            ("FALKON_HOST_FILE", path(&hydra)),
            ("FALKON_OPENMPI_HOST_FILE", path(&open_mpi)),
            ("FALKON_RANKS_PER_NODE", ranks.to_string().into_bytes()),
            ("HYDRA_HOST_FILE", path(&hydra)),
            ("HYDRA_LAUNCHER", text("rsh")),
            ("HYDRA_LAUNCHER_EXEC", path(&shell)),
            ("I_MPI_HYDRA_HOST_FILE", path(&hydra)),
            ("I_MPI_HYDRA_BOOTSTRAP", text("rsh")),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC", path(&shell)),
            ("OMPI_MCA_orte_default_hostfile", path(&open_mpi)),
            ("OMPI_MCA_plm", text("rsh")),
            ("OMPI_MCA_plm_rsh_agent", path(&shell)),
            // Daemons that leave their sessions would be ended as left behind. Each then keeps
            // its remote shell, and other nodes have no files of the first.
            ("OMPI_MCA_orte_leave_session_attached", text("1")),
            ("OMPI_MCA_plm_rsh_no_tree_spawn", text("1")),
            ("OMPI_MCA_plm_rsh_num_concurrent", concurrent.clone()),
            ("PRTE_MCA_prte_default_hostfile", path(&open_mpi)),
            ("PRTE_MCA_plm", text("ssh")),
            ("PRTE_MCA_plm_ssh_agent", path(&shell)),
            ("PRTE_MCA_prte_leave_session_attached", text("1")),
            ("PRTE_MCA_plm_ssh_no_tree_spawn", text("1")),
            ("PRTE_MCA_plm_ssh_num_concurrent", concurrent),
        ];
        let set = set.into_iter().map(|(name, value)| (text(name), value));
        Ok(set.chain(all).chain(of_slurm(hosts, ranks, |name| std::env::var(name).ok())).collect())
    }
}

/// What `srun` is to find, if this executor is in a job of Slurm and the nodes have plain names.
/// Nodes outside of that job are refused by `srun`.
fn of_slurm(
    hosts: &[String],
    ranks: u32,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Variable> {
    let is_plain = |name: &String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.bytes().all(is_plain)
    };
    let job = variable("SLURM_JOB_ID").filter(|job| job.bytes().all(|b| b.is_ascii_digit()));
    let Some(job) = job.filter(|job| !job.is_empty() && hosts.iter().all(is_plain)) else {
        return Vec::new();
    };
    let (nodes, tasks) = (hosts.len(), hosts.len() as u64 * u64::from(ranks));
    let options = format!(
        "--jobid={job} --overlap --nodes={nodes} --ntasks={tasks} --ntasks-per-node={ranks} \
         --nodelist={}",
        hosts.join(",")
    );
    let configured = variable(SLURM_CONF).map(|path| (SLURM_CONF, path));
    let options = (options.len() <= NODES_BYTES_MAX).then_some((SRUN_VARIABLE, options));
    let set = options.into_iter().chain(configured);
    set.map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect()
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the executor's own directory, which goes later.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_find_their_files_and_the_program_that_stands_in_for_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(&[dir.path()], "gang-1").unwrap();
        let hosts = ["a".to_owned(), "b".to_owned()];
        let program = Path::new("/bin/true");
        let set = folder.fill(&hosts, 2, &GangToken([0xab; 16]), program).unwrap();
        let value = |name: &str| {
            let found = set.iter().find(|(set, _)| set == name.as_bytes()).unwrap();
            String::from_utf8(found.1.clone()).unwrap()
        };
        let content = |name: &str| fs::read_to_string(value(name)).unwrap();
        assert_eq!(value("FALKON_NODES"), "a,b");
        assert_eq!(content("FALKON_NODE_FILE"), "a\nb\n");
        assert_eq!(content("HYDRA_HOST_FILE"), "a:2\nb:2\n");
        assert_eq!(content("OMPI_MCA_orte_default_hostfile"), "a slots=2\nb slots=2\n");
        assert_eq!(fs::read_link(value("HYDRA_LAUNCHER_EXEC")).unwrap(), program);
        let socket = folder.socket().display().to_string();
        assert_eq!(value(GANG_VARIABLE), format!("{socket}:{}", "ab".repeat(16)));
        drop(folder);
        assert!(!dir.path().join("gang-1").exists());
    }

    #[test]
    fn srun_has_its_options_within_a_job_of_slurm_alone() {
        let hosts = ["a".to_owned(), "b-1.c".to_owned()];
        let set = |hosts: &[String], job: Option<&str>| {
            let variable = |name: &str| match name {
                "SLURM_JOB_ID" => job.map(str::to_owned),
                SLURM_CONF => Some("/etc/conf".to_owned()),
                _ => None,
            };
            let set = of_slurm(hosts, 3, variable);
            let text = |bytes| String::from_utf8(bytes).unwrap();
            set.into_iter().map(|(name, value)| (text(name), text(value))).collect::<Vec<_>>()
        };
        let options = "--jobid=7 --overlap --nodes=2 --ntasks=6 --ntasks-per-node=3 \
                       --nodelist=a,b-1.c";
        let expected = [("FALKON_SRUN", options), (SLURM_CONF, "/etc/conf")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(set(&hosts, Some("7")), expected);
        for job in [None, Some(""), Some("7; rm"), Some("7 8")] {
            assert!(set(&hosts, job).is_empty());
        }
        for name in ["a:1", "", "a b", "a,b", "$a"] {
            assert!(set(&["a".to_owned(), name.to_owned()], Some("7")).is_empty());
        }
    }

    #[test]
    fn a_place_with_a_long_name_or_one_that_needs_quotes_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(90));
        let quoted = dir.path().join("a b");
        let folder = Folder::make(&[&long, &quoted, dir.path()], "gang").unwrap();
        assert_eq!(folder.path, dir.path().join("gang"));
        assert!(Folder::make(&[&long, &quoted], "gang").is_err());
        assert!(Folder::make(&[dir.path()], "gang").is_err(), "it is there already");
    }
}
