//! A batch scheduler that answers with anything at all.

use crate::fixture::{Random, Site};

/// One answer of each kind, drawn for each call: what Slurm says, what it says
/// when it is down, half of an answer, jobs of others, and none at all.
const ANSWERS: &str = r#"
case $((seed % 11)) in
  0) ;;
  1) echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1 ;;
  2) echo "Submitted batch job $seed" ;;
  3) echo "$seed" ;;
  4) echo "$seed|falkon-00000000-$seed|RUNNING|1|node|UNLIMITED|" ;;
  5) head -c 3000000 /dev/zero | tr '\0' x ;;
  6) head -c 5000 /dev/urandom ;;
  7) echo '{"jobs":[{"job_id":-1,"name":null}]}' ;;
  8) echo "18446744073709551616|||||||" ;;
  9) kill -9 $$ ;;
  10) sleep 2; echo "$seed" ;;
esac
"#;

impl Site {
    /// Puts such a scheduler in front of the programs' search path.
    pub(super) fn lying_scheduler(&mut self, random: &mut Random) {
        let bin = self.path("lying");
        std::fs::create_dir(&bin).unwrap();
        for command in ["sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol"] {
            let text = format!(
                "#!/bin/bash\nseed=$(( ({} + RANDOM * 32768 + RANDOM) % 1000000 ))\n\
                 cat > /dev/null 2>&1 < /dev/null\n{ANSWERS}",
                random.below(1_000_000)
            );
            let path = bin.join(command);
            std::fs::write(&path, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        self.set("PATH", &format!("{}:{path}", bin.display()));
    }
}
