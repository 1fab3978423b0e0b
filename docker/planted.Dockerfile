# The runtime with one bug planted, to prove that the experiment meant for it catches it.
ARG RUNTIME_IMAGE=flashruntime/runtime:local
FROM ${RUNTIME_IMAGE}
ARG PLANT
LABEL dev.flashruntime.owner=flashruntime
USER 0:0
COPY chaos/payloads/plant.py chaos/payloads/planted_${PLANT}.py /tmp/plant/
RUN python3 /tmp/plant/plant.py planted_${PLANT} && rm -r /tmp/plant
USER 10001:10001
