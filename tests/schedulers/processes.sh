# What is left of daemons and their jobs: every process but this one that has
# VARIABLE=VALUE in its environment.
left_with() {
    local process
    for process in /proc/[0-9]*; do
        if [[ ${process#/proc/} != "$$" ]] && tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -q "^$1$"; then
            echo "${process#/proc/}"
        fi
    done 2>/dev/null
}
