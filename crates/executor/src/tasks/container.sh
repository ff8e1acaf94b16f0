# Runs a task's command in a container. The number of words, the words and the command are the
# arguments of falkon_contain; falkon_failed is there already.
falkon_newline='
'
falkon_binds= falkon_names= falkon_container= falkon_folder=$(pwd -P)

# Has the container show the absolute path $2, which is read only if $1 is ro and not rw. Engines
# refuse a path that is given twice, however it is written.
falkon_bind() {
  case $2/ in
  *//* | */./* | */../*)
    set -- "$1" "$(falkon_absolute "$2")"
    if [ -z "$2" ]; then falkon_failed "a container cannot show what is not there"; return; fi
    ;;
  esac
  case $2 in
  "$falkon_folder" | "$falkon_folder"/*)
    [ "$falkon_folder_is_bound" ] && return
    falkon_folder_is_bound=yes
    ;;
  esac
  case $2 in
  /) falkon_failed "a container cannot show / of its node: run the task elsewhere (--cwd)" ;;
  *[:,\"]* | *"$falkon_newline"*)
    falkon_failed "a container cannot show $2: rename it, without colons, commas, double quotes and line feeds"
    ;;
  *)
    case $falkon_newline$falkon_binds in
    *"$falkon_newline"r[ow]"$2$falkon_newline"*) ;;
    *) falkon_binds=$falkon_binds$1$2$falkon_newline ;;
    esac
    ;;
  esac
}

# Prints a path without what is superfluous in it. What .. means after a link the kernel decides.
falkon_absolute() {
  case $1/ in
  ../* | */../*) falkon_how=-P ;;
  *) falkon_how=-L ;;
  esac
  if [ -d "$1" ]; then (cd $falkon_how -- "$1" && pwd $falkon_how); return; fi
  falkon_parent=$(cd $falkon_how -- "$(dirname -- "$1")" && pwd $falkon_how) || return
  printf '%s/%s' "${falkon_parent%/}" "$(basename -- "$1")"
}

# Has the container show the path $2 and what it links to, whether it is a link itself or leads
# over one.
falkon_show() {
  case $2 in
  /*) falkon_bind "$1" "$2" || return ;;
  *..*) falkon_bind "$1" "$(falkon_absolute "$2")" || return ;;
  */*) ;;
  *) [ -L "$2" ] || return 0 ;;
  esac
  if [ -L "$2" ]; then
    falkon_target=$(readlink -- "$2")
    case $falkon_target in
    /*) ;;
    *) falkon_target=$(falkon_absolute "$(dirname -- "$2")/$falkon_target") ;;
    esac
    falkon_bind "$1" "$falkon_target" || return
  fi
  # That an input is not there is the command's affair.
  falkon_target=$(readlink -f -- "$2") || return 0
  falkon_bind "$1" "$falkon_target"
}

# Sets falkon_engine and falkon_image.
falkon_choose() {
  falkon_engine= falkon_image=$falkon_container
  case $falkon_container in
  docker://*) ;;
  apptainer:* | singularity:* | podman:* | docker:*)
    falkon_engine=${falkon_container%%:*} falkon_image=${falkon_container#*:}
    ;;
  esac
  case $falkon_image in
  '' | -*) falkon_failed "\"$falkon_image\" is no image of a container"; return ;;
  esac
  falkon_engines='apptainer singularity podman docker'
  case $falkon_image in
  /* | ./* | ../* | *.sif | *.simg)
    if ! [ -e "$falkon_image" ]; then
      falkon_failed "there is no image $falkon_image on this node: its path begins in the task's directory"
      return
    fi
    falkon_engines='apptainer singularity'
    ;;
  esac
  for falkon_one in ${falkon_engine:-$falkon_engines}; do
    if command -v "$falkon_one" >/dev/null 2>&1; then falkon_engine=$falkon_one; return; fi
  done
  case $falkon_engine$falkon_engines in
  'apptainer singularity') falkon_missing="apptainer or singularity, which run image files," ;;
  'apptainer singularity podman docker') falkon_missing="apptainer, singularity, podman or docker" ;;
  *) falkon_missing=$falkon_engine ;;
  esac
  falkon_failed "there is no $falkon_missing on this node for the image $falkon_image: install it, or load its module with --module"
  return 127
}

# Runs the command "$@" in a container of apptainer or singularity, in this shell's place.
falkon_exec_image() {
  case $falkon_image in
  *://* | docker-archive:* | docker-daemon:* | oci-archive:* | oci:*) ;;
  *) [ -e "$falkon_image" ] || falkon_image=docker://$falkon_image ;;
  esac
  case $falkon_engine in
  apptainer) falkon_prefix=APPTAINER ;;
  *) falkon_prefix=SINGULARITY ;;
  esac
  # All variables are passed on. Those with the prefix also replace the image's, but a shell of
  # the engine evaluates their values, unless it knows NO_EVAL as releases since 2022 do.
  export "${falkon_prefix}_NO_EVAL=1"
  for falkon_name in $falkon_names; do
    eval "falkon_value=\${$falkon_name-}"
    case $falkon_value in
    '' | *[\$\`\"\\]*) ;;
    *) export "${falkon_prefix}ENV_$falkon_name=$falkon_value" ;;
    esac
  done
  # The variable is passed on, unlike the directories of the node.
  if [ -d "${TMPDIR:-}" ]; then falkon_bind rw "$TMPDIR" || return; fi
  set -- "$falkon_image" "$@"
  if [ "${FALKON_GPUS:-0}" != 0 ]; then
    if [ -e /dev/nvidiactl ]; then set -- --nv "$@"; fi
    if [ -e /dev/kfd ]; then set -- --rocm "$@"; fi
  fi
  while IFS= read -r falkon_line; do
    falkon_path=${falkon_line#r?}
    if [ "$falkon_path" ]; then
      set -- --bind "$falkon_path:$falkon_path:${falkon_line%"$falkon_path"}" "$@"
    fi
  done <<END
$falkon_binds
END
  exec "$falkon_engine" --silent exec --home "$falkon_folder" --pwd "$falkon_folder" "$@"
}

# Runs the command "$@" in a container of podman or docker, and kills that if it is left.
falkon_run_image() {
  case $falkon_engine in
  docker) falkon_image=${falkon_image#docker://} ;;
  esac
  set -- "$falkon_image" "$@"
  for falkon_name in $falkon_names; do set -- --env "$falkon_name" "$@"; done
  # The task's own counts, if it was given one: it stands behind this.
  set -- --env "HOME=$falkon_folder" "$@"
  while IFS= read -r falkon_line; do
    falkon_path=${falkon_line#r?}
    case $falkon_line in
    ro*) set -- --mount "type=bind,src=$falkon_path,dst=$falkon_path,readonly" "$@" ;;
    rw*) set -- --mount "type=bind,src=$falkon_path,dst=$falkon_path" "$@" ;;
    esac
  done <<END
$falkon_binds
END
  if [ "${FALKON_GPUS:-0}" != 0 ]; then
    if [ -e /dev/nvidiactl ]; then
      case $falkon_engine in
      podman) set -- --device nvidia.com/gpu=all "$@" ;;
      docker) set -- --gpus all "$@" ;;
      esac
    fi
    if [ -e /dev/kfd ]; then set -- --device /dev/kfd --device /dev/dri "$@"; fi
  fi
  falkon_user=$(id -u):$(id -g) falkon_runtime=
  if [ "$falkon_engine" = podman ]; then
    # Without control groups of its own the container stays in the task's, with its limits. Only
    # crun can do that, and keep the user's groups.
    if command -v crun >/dev/null 2>&1; then
      falkon_runtime=yes
      set -- --cgroups=disabled "$@"
    fi
    case $falkon_user in
    0:*) set -- --user "$falkon_user" "$@" ;;
    *)
      set -- --userns=keep-id "$@"
      if [ "$falkon_runtime" ]; then set -- --group-add=keep-groups "$@"; fi
      ;;
    esac
    for falkon_path in /usr/libexec/podman/catatonit /usr/bin/catatonit /usr/bin/tini; do
      if [ -x "$falkon_path" ]; then set -- --init --init-path "$falkon_path" "$@"; break; fi
    done
  else
    if ! falkon_security=$(docker info --format '{{.SecurityOptions}}'); then
      falkon_failed "docker does not answer on this node: start its service, or give this user access to it"
      return
    fi
    case $falkon_security in
    # Its root is this user.
    *rootless*) falkon_user=0:0 ;;
    *) for falkon_group in $(id -G); do set -- --group-add "$falkon_group" "$@"; done ;;
    esac
    set -- --init --user "$falkon_user" "$@"
  fi
  falkon_title=falkon-$$-$(printf %s "${FALKON_TASK_KEY-}" | tr -c 'A-Za-z0-9_.' -)
  set -- run --rm --interactive --name "$falkon_title" --log-driver none --network host \
    --security-opt label=disable --entrypoint '' --workdir "$falkon_folder" "$@"
  if [ "$falkon_runtime" ]; then set -- --runtime crun "$@"; fi
  falkon_watch "$falkon_engine" "$@"
  if [ "$falkon_status" = 125 ]; then
    falkon_failed "$falkon_engine ended with 125: it says above why it cannot run the image $falkon_image; try $falkon_engine pull on this node"
  fi
  exit "$falkon_status"
}

# Sets falkon_status to that of the command "$@". A cleaner reads from a pipe that this shell
# alone writes to: it learns of this shell's end whoever causes that, by SIGKILL too.
falkon_watch() {
  for falkon_one in setsid timeout; do
    command -v "$falkon_one" >/dev/null 2>&1 && continue
    falkon_failed "there is no $falkon_one on this node, which containers of $falkon_engine need"
    exit
  done
  falkon_scratch=$(mktemp -d "${TMPDIR:-/tmp}/falkon-XXXXXX") && mkfifo "$falkon_scratch/end" || {
    falkon_failed "cannot make a pipe in ${TMPDIR:-/tmp}"
    exit
  }
  (
    FALKON_CLEANER_KEY=${FALKON_TASK_KEY-}
    export FALKON_CLEANER_KEY
    unset FALKON_TASK_KEY
    exec setsid /bin/sh -c "$falkon_cleaner" falkon "$falkon_scratch/end" "$1" "$falkon_title"
  ) </dev/null >/dev/null 2>&1 &
  exec 8<&0 9>"$falkon_scratch/end"
  rm -r "$falkon_scratch"
  falkon_is_stopped=
  trap 'falkon_is_stopped=yes; echo stop >&9' TERM INT HUP
  # Somebody may have killed the cleaner.
  trap : PIPE
  "$@" <&8 8<&- 9>&- &
  falkon_pid=$!
  while :; do
    wait "$falkon_pid"
    falkon_status=$?
    kill -0 "$falkon_pid" 2>/dev/null || break
  done
  if [ -z "$falkon_is_stopped" ] && [ "$falkon_status" -le 127 ]; then echo ended >&9; fi 2>/dev/null
}

# After SIGTERM, the container is killed before the shell is. It may be about to start when it is
# first asked for.
falkon_cleaner='
exec <"$1"
read -r word
case $word in
ended) exit ;;
stop) sleep 1 ;;
esac
for turn in 1 2; do
  timeout 20 "$2" kill "$3"
  timeout 20 "$2" rm -f "$3"
  sleep 1
done'

falkon_contain() {
  falkon_folder_is_bound=
  falkon_left=$1
  shift
  case $1 in
  folder=*) falkon_physical=$falkon_folder falkon_folder=$(falkon_absolute "${1#*=}") ;;
  *) falkon_physical= ;;
  esac
  falkon_bind rw "$falkon_folder" || return
  if [ "$falkon_physical" ]; then falkon_bind rw "$falkon_physical" || return; fi
  while [ "$falkon_left" -gt 0 ]; do
    falkon_value=${1#*=}
    case $1 in
    container=*) falkon_container=$falkon_value ;;
    bind=*) falkon_bind rw "$falkon_value" || return ;;
    output=*) falkon_show rw "$(dirname -- "$falkon_value")" || return ;;
    input=*) falkon_show ro "$falkon_value" || return ;;
    variable=*) falkon_names="$falkon_names $falkon_value" ;;
    esac
    shift
    falkon_left=$((falkon_left - 1))
  done
  if [ -d "${FALKON_SCRATCH:-}" ]; then falkon_bind rw "$FALKON_SCRATCH" || return; fi
  falkon_choose || return
  case $falkon_engine in
  apptainer | singularity) falkon_exec_image "$@" ;;
  *) falkon_run_image "$@" ;;
  esac
}
